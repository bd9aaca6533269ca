"""BAGEL: reads text and pictures, answers in text, and draws pictures."""
