"""Keeps what is played as it comes ahead of its playback: deadlines, measured step times, bounded shares."""
