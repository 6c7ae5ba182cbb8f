"""Is the verdict on memory right?  Trainings whose truth is known are attached to and watched."""
