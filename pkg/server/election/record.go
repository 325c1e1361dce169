package election

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	maxRecordBytes = 64 << 10
	maxHolder      = 256
	maxDuration    = time.Hour
)

// Addrs are a server's own addresses, each host:port, at which others reach its services. They
// never contain the leader's moving address, as they identify one holder.
type Addrs struct {
	Election     string `json:"election"`
	Registration string `json:"registration"`
	Operator     string `json:"operator"`
	Agent        string `json:"agent"`
}

// Record is the object that says which server leads. Holder is unique per start of a process,
// so it also identifies the writer. Rev differs between any two attempts to write within an
// epoch, so the body, and an etag that is a hash of it, always changes.
type Record struct {
	Holder        string
	Epoch         uint64 // incremented by at least one with each change of leader
	Rev           uint64
	Addrs         Addrs
	LeaseDuration time.Duration // the holder may be suspected when unchanged for this long
	FenceWindow   time.Duration // a successor waits 1.1 times this long
	Released      bool          // the holder had stopped acting before this write
	Successor     string        // of a release: other servers wait a lease before they take it; empty: any server may
}

type recordJSON struct {
	Holder        string `json:"holder"`
	Epoch         uint64 `json:"epoch"`
	Rev           uint64 `json:"rev"`
	Addrs         Addrs  `json:"addrs"`
	LeaseDuration string `json:"lease_duration"`
	FenceWindow   string `json:"fence_window"`
	Released      bool   `json:"released"`
	Successor     string `json:"successor,omitempty"`
}

// MarshalJSON writes durations as Go duration strings.
func (r Record) MarshalJSON() ([]byte, error) { return json.Marshal(r.toJSON()) }

func (r Record) toJSON() recordJSON {
	return recordJSON{
		Holder: r.Holder, Epoch: r.Epoch, Rev: r.Rev, Addrs: r.Addrs, Released: r.Released, Successor: r.Successor,
		LeaseDuration: r.LeaseDuration.String(), FenceWindow: r.FenceWindow.String(),
	}
}

// UnmarshalJSON rejects invalid values. It ignores fields of newer versions, and the next
// holder's record drops them: servers of different versions must be able to take over from
// each other.
func (r *Record) UnmarshalJSON(b []byte) error {
	var w recordJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	lease, err := parseDuration("lease_duration", w.LeaseDuration)
	if err != nil {
		return err
	}
	window, err := parseDuration("fence_window", w.FenceWindow)
	if err != nil {
		return err
	}
	*r = Record{
		Holder: w.Holder, Epoch: w.Epoch, Rev: w.Rev, Addrs: w.Addrs,
		LeaseDuration: lease, FenceWindow: window, Released: w.Released, Successor: w.Successor,
	}
	return r.check()
}

func (r Record) check() error {
	switch {
	case r.Holder == "" || len(r.Holder) > maxHolder:
		return fmt.Errorf("holder: %.80q is not a name of 1 to %d characters", r.Holder, maxHolder)
	case r.Epoch == 0:
		return errors.New("epoch: 0 is not an epoch, the first is 1")
	case r.Epoch > lastEpoch:
		return fmt.Errorf("epoch: %d leaves no room for later ones, want at most %d", r.Epoch, uint64(lastEpoch))
	case r.Rev == 0:
		return errors.New("rev: 0 is not a rev, the first is 1")
	case r.Rev > MaxEpoch:
		return fmt.Errorf("rev: %d leaves no room for later ones, want at most %d", r.Rev, uint64(MaxEpoch))
	case len(r.Successor) > maxHolder:
		return fmt.Errorf("successor: %.80q is longer than %d characters", r.Successor, maxHolder)
	}
	return nil
}

func parseDuration(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxDuration {
		return 0, fmt.Errorf("%s: %.80q is not a duration above 0 and up to %s", field, s, maxDuration)
	}
	return d, nil
}

// ParseRecord parses a stored record. Trailing data and values out of range are errors, which
// name the field. Unknown fields are ignored.
func ParseRecord(b []byte) (Record, error) {
	var r Record
	if err := parseOne(b, &r); err != nil {
		return Record{}, fmt.Errorf("parse election record: %w", err)
	}
	return r, nil
}

func parseOne(b []byte, v any) error {
	if len(b) > maxRecordBytes {
		return fmt.Errorf("%d bytes, at most %d are valid", len(b), maxRecordBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
