"""When two views are the same: patches, folded, and views built from them anew."""
