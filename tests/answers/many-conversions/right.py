from fixed import run_all  # the rule sp-bound-child-fanout, as `verify-recipes.py --fixed` prints it


def convert_all(commands):
    return run_all(commands, at_most=8)
