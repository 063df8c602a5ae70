"""Tests of the engines that are objects in this process, with strict fakes of the objects."""
