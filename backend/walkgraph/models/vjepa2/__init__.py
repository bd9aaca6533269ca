"""V-JEPA 2-AC: sees pictures, predicts what actions lead to, and plans actions by it."""
