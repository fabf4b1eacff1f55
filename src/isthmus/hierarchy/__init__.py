"""Systems made of many small ones: clusters of clusters, and trees of groups (daisies)."""
