"""A user's own files as data: manifests and folders, readers, splits, checks, decoded samples."""
