// Package metrics serves a program's metrics to Prometheus. Most are read from the program's
// state when they are scraped, so that nothing has to be counted twice; only durations, and what
// no state remembers, are recorded as they happen.
//
// The package prometheus below it does that with Prometheus' client library, which it alone
// imports. It costs a process about 1 MB of memory, and 2 MB of code if nothing else in it uses
// protobuf, so small programs use Plain, which has gauges and counters only.
package metrics
