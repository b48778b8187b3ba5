from fixed import run_all


def convert_all(commands):
    return run_all(commands, at_most=10)
