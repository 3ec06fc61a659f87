"""What a judge's confidence means, and from which confidence on a cheap judge may be trusted."""
