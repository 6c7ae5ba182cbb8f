"""Is what is said of a step's time right?  Trainings whose truth is known are attached to and watched."""
