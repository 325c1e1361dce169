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

// Addrs are a server's own addresses, host:port each, where others reach its
// services. Never the leader's moving address: they say where one holder is.
type Addrs struct {
	Election     string `json:"election"`
	Registration string `json:"registration"`
	Operator     string `json:"operator"`
	Agent        string `json:"agent"`
}

// Record is the one object that says who leads. Holder is unique per start of a
// process, so it names the writer too. Rev differs between any two attempts to
// write within an epoch, so the body, and an etag that is a hash, always changes.
type Record struct {
	Holder        string
	Epoch         uint64 // grows by at least one with each change of leader
	Rev           uint64
	Addrs         Addrs
	LeaseDuration time.Duration // how long unchanged until others may suspect the holder
	FenceWindow   time.Duration // a successor waits 1.1 times this
	Released      bool          // the holder stopped acting before it wrote this
	Successor     string        // of a release: others wait a lease before they take it; empty: for anybody
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
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordJSON{
		Holder: r.Holder, Epoch: r.Epoch, Rev: r.Rev, Addrs: r.Addrs, Released: r.Released, Successor: r.Successor,
		LeaseDuration: r.LeaseDuration.String(), FenceWindow: r.FenceWindow.String(),
	})
}

// UnmarshalJSON rejects values that no holder could have meant. Fields of a newer
// version are left out of account, and the next holder's record is without them:
// a server of any version must be able to take over from one of any other.
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

// ParseRecord reads a stored record. Anything after the record is an error, and so
// is a value out of range, by the name of its field. Unknown fields are a newer
// version's.
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
