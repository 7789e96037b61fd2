// Kernels with one fault each, for the machine to find: a test of its own.
#pragma once

namespace embla::ptx_run {

// Each launches one kernel on memory of its own; 0, or a CUDA error.
int RunWithoutFault();     // A launch that is right.
int RunWithoutSyncWarp();  // Lanes read what their neighbours write, and do not meet.
int RunPastTheEnd();       // The last thread reads one element too many.
int RunBlocksThatRace();   // Blocks write the same element.
int RunMisaligned();       // Sixteen bytes at an address of eight.
int RunWriteOfConstant();  // Writes what it reads as constant.
int RunWithoutALane();     // Meets lanes that have left.
int RunOutsideOfMemory();  // Reads freed memory.

}  // namespace embla::ptx_run
