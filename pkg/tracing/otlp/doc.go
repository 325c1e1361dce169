// Package otlp exports spans to a collector with OTLP, over HTTP or gRPC, as the environment
// variables OTEL_* of the OpenTelemetry specification say:
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
// and https://opentelemetry.io/docs/specs/otel/protocol/exporter/. It differs from them in one
// thing: without an endpoint nothing is exported.
package otlp
