// Package settings parses an operator's flags, environment variables, and configuration file,
// which is followed while the operator runs.
package settings
