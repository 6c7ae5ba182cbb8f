"""Is what is said of bad numbers right?  Trainings whose truth is known are attached to and watched."""
