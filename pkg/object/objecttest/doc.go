// Package objecttest holds the contract of object.Store as tests: Run is the
// conformance suite that every backend passes, and Faults makes any store fail
// in the ways that callers must survive.
//
// A write fails in three ways, and its sender can't tell them apart: it never
// arrived, it arrived and only the reply was lost, or it is still under way and
// lands later.
package objecttest
