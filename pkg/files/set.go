package files

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Set is the desired set of files of an instance.
type Set struct {
	ConfigHash string
	// Names are all files of the set.
	Names []string
	// Sent are the contents of the changed files, by name. Other files in Names stay as they
	// are on disk.
	Sent map[string][]byte
}

// Check returns an error if the set is invalid regardless of the disk. Errors of single files
// are FileErrors.
func (s Set) Check() error {
	if err := checkHash(s.ConfigHash); err != nil {
		return err
	}
	if err := CheckNames(s.Names); err != nil {
		return err
	}
	size := 0
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(s.Sent)) {
		if !slices.Contains(s.Names, name) {
			return fmt.Errorf("%.80q was sent but is not in the set", name)
		}
		size += len(s.Sent[name])
		if err := CheckContent(name, s.Sent[name]); err != nil {
			problems = append(problems, &FileError{name, err})
		}
	}
	if size > MaxSetSize {
		return fmt.Errorf("%d bytes at once: at most %d are allowed", size, MaxSetSize)
	}
	return errors.Join(problems...)
}

// FileError is an error of one file of a set.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// maxReason is the maximum length of a file's error in a report, in bytes.
const maxReason = 300

// Failures returns the error text per file of a set. An error that concerns no file in
// particular is returned for every valid name in names.
func Failures(err error, names []string) map[string]string {
	failed := make(map[string]string)
	collect(err, failed)
	if len(failed) > 0 {
		return failed
	}
	for _, name := range names[:min(len(names), MaxFiles)] {
		if CheckName(name) == nil {
			failed[name] = reason(err)
		}
	}
	return failed
}

func collect(err error, failed map[string]string) {
	switch e := err.(type) { //nolint:errorlint // walks the tree
	case *FileError:
		failed[e.Name] = reason(e.Err)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			collect(one, failed)
		}
	case interface{ Unwrap() error }:
		collect(e.Unwrap(), failed)
	}
}

func reason(err error) string {
	text := err.Error()
	for text = text[:min(len(text), maxReason)]; !utf8.ValidString(text) && len(text) > maxReason-utf8.UTFMax; {
		text = text[:len(text)-1]
	}
	return strings.ToValidUTF8(text, "?")
}
