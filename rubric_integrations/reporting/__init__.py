"""Grades for people."""
