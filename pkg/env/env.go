// Package env reads environment variables. Empty and blank variables count as unset.
package env

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Reader reads variables and collects their errors. It is not safe for concurrent use.
type Reader struct {
	Getenv   func(name string) string // os.Getenv except in tests
	problems []error
}

// Get returns the value of a variable, trimmed; empty if it is unset.
func (r *Reader) Get(name string) string { return strings.TrimSpace(r.Getenv(name)) }

// First returns the value and name of the first of the variables that is set; empty if none is.
func (r *Reader) First(names ...string) (value, name string) {
	for _, name := range names {
		if value := r.Get(name); value != "" {
			return value, name
		}
	}
	return "", ""
}

// Bool returns the value of a boolean variable; false if it is unset.
func (r *Reader) Bool(name string) bool {
	value := cmp.Or(r.Get(name), "false")
	on, err := strconv.ParseBool(value)
	if err != nil {
		r.Reject(name, value, "true or false")
	}
	return on
}

// Reject records that a field's value is not valid, and what it should be.
func (r *Reader) Reject(field, value, want string) {
	r.Fail(fmt.Errorf("%s: %.80q is not valid: want %s", field, value, want))
}

// Fail records an error; nil is ignored by Err.
func (r *Reader) Fail(err error) { r.problems = append(r.problems, err) }

// Err returns the recorded errors, one per line; nil if there are none.
func (r *Reader) Err() error { return errors.Join(r.problems...) }
