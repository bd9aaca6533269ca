"""A small speaker: reads words, and speaks each as frames of a codec whose sound is harmonics plus noise."""
