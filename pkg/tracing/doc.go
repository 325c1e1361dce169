// Package tracing makes spans, as OpenTelemetry defines them: the periods that a piece of work
// consists of, in traces that may cross processes. The package otlp below it exports them; it
// alone imports the SDK, so that a program that only passes a trace on does not link it.
//
// How an instance is started is one trace, whose parts are made by several processes, and by
// several leaders if one is lost meanwhile. So that none of them has to store or to send its
// context, the trace's id and that of its first span follow from the instance's id: each process
// that knows the id, as an agent does from its nonce, can add to the trace.
package tracing
