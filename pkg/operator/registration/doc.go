// Package registration gets the operator its certificate, and keeps it renewed.
package registration
