"""The kernels of the book: the SIMT ladder, from one thread an element to register tiles, and the Triton kernels.

A kernel here is judged in the simulator, compiled for a GPU, and measured where there is one. No
kernel is in the book whose counters are not predicted and checked.
"""
