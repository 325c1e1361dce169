// Package settings is how an operator is started: flags, environment variables, and
// the configuration file, which is followed while the operator runs.
package settings
