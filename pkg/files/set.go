package files

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Set is what a server wants an instance to have.
type Set struct {
	ConfigHash string
	// Names are those of all files of the set.
	Names []string
	// Sent are the contents of the files that change, by name. The others of
	// Names stay as they are on disk.
	Sent map[string][]byte
}

// Check reports why the set can't be taken over, whatever is on disk; nil when
// nothing speaks against it. What is wrong with single files is a FileError each.
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
			return fmt.Errorf("%.80q was sent and is not of the set", name)
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

// FileError is what is wrong with one file of a set.
type FileError struct {
	Name string
	Err  error
}

func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// maxReason is the longest error that is reported of a file, in bytes.
const maxReason = 300

// Failures tells of which files of a set err is, and what to say of each. An
// error that is of no file in particular is of every valid name in names.
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
	switch e := err.(type) { //nolint:errorlint // the tree is walked here
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
