"""Engines that start runs elsewhere: settings, jobs, and what a launch takes."""
