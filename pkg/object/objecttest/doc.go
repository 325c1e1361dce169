// Package objecttest tests the contract of object.Store: Run is the conformance suite that every
// backend passes, and Faults makes any store fail in the ways that callers must survive.
//
// A write fails in three ways, and its sender can't distinguish them: it never arrived, it
// arrived and the reply was lost, or it is still in flight and lands later.
package objecttest
