// Package registration obtains and renews the operator's certificate.
package registration
