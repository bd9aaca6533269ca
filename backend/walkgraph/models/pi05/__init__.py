"""pi0.5: a policy that reads cameras, a robot's state and a sentence, and gives a chunk of actions."""
