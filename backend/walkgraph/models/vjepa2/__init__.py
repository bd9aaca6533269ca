"""V-JEPA 2-AC: sees pictures, predicts the effects of actions, and plans actions with these predictions."""
