"""The scenes of the Codec reference: its figures as it states them, and ours from the committed measurements."""
