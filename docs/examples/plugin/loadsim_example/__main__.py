"""Print the path of the profile: `python -m loadsim_example`."""

from importlib.resources import files

print(files("loadsim_example") / "office.yaml")
