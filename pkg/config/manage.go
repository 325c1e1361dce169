package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/fleet"
)

// maxManager is the maximum length of a manager's name, in bytes.
const maxManager = 512

// By is on whose behalf a group is changed. A change makes Manager manage the group, or ends the
// management if that is empty. A group that something else manages is changed only by force.
type By struct {
	Manager string
	Force   bool
}

// ManagedError is the error of a change of a group that something else manages.
type ManagedError struct {
	Key     fleet.GroupKey
	Manager string
}

func (e *ManagedError) Error() string {
	return fmt.Sprintf("group %s is managed by %s", e.Key, e.Manager)
}

// permits returns a ManagedError if something else manages the group, or Problems if the name of the
// manager can't be stored.
func (r GroupRecord) permits(key fleet.GroupKey, by By) error {
	if err := checkManager(by.Manager); err != nil {
		return Problems{{Path: "manager", Message: err.Error()}}
	}
	if !r.exists || r.Manager == "" || r.Manager == by.Manager || by.Force {
		return nil
	}
	return &ManagedError{key, r.Manager}
}

// managedBy returns the entry with its manager after a change.
func (e Entry) managedBy(c Change) Entry {
	if !c.OnlyPauses() {
		e.Manager = c.By.Manager
	}
	return e
}

// repeats reports whether a change creates a group as it is, which something manages meanwhile: the reply to
// the create was lost.
func (c Change) repeats(was GroupRecord) bool {
	return c.Create && c.By == By{} && was.Manager != "" && was.makes(c)
}

// OnlyManages reports whether the change makes something the group's manager, or ends that, and changes
// nothing else.
func (c Change) OnlyManages() bool { return c.By != By{} && reflect.DeepEqual(c, Change{By: c.By}) }

// KeepsHold reports whether the change leaves a group held whose record is missing.
func (c Change) KeepsHold() bool { return c.OnlyPauses() || c.OnlyManages() }

// EndsManagement returns what manages a group that is changed until then; empty if that is nothing, or
// continues to manage it.
func (c Change) EndsManagement(was GroupRecord) string {
	if !was.exists || c.OnlyPauses() || was.Manager == c.By.Manager {
		return ""
	}
	return was.Manager
}

// checkManager checks a manager's name.
func checkManager(name string) error {
	notPrintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case len(name) > maxManager:
		return fmt.Errorf("%d bytes: at most %d are allowed", len(name), maxManager)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, notPrintable):
		return fmt.Errorf("%.80q: want printable characters", name)
	}
	return nil
}
