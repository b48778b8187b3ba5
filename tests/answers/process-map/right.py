import multiprocessing
import os
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait


def map_processes(function, items):
    pool = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"))
    try:
        jobs = [pool.submit(function, item) for item in items]
        for job in wait(jobs, return_when=FIRST_EXCEPTION).done:
            job.result()  # raises the first failure
        return [job.result() for job in jobs]
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()  # from 3.14 on: pool.kill_workers()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
