"""What each judge of a panel is worth, and which weights its votes should have."""
