from fixed import run_all


def convert_all(commands):
    return [output.decode("utf-8") for output in run_all(commands, at_most=8)]
