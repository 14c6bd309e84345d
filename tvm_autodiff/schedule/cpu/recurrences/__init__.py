"""Schedules repeated steps on a CPU: loops over time as one function, and prefix scans."""
