import multiprocessing


def map_processes(function, items):
    with multiprocessing.Pool() as pool:
        return pool.map(function, items)
