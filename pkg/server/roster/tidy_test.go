package roster_test

import (
	"testing"
	"time"
)

// TestForgetsWhoIsNotHere: inactive operators are forgotten after a day, those without a
// record soon; one with an open stream is kept.
func TestForgetsWhoIsNotHere(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		const each = 100
		for n := range each {
			d.put(record(caller("default", n)))
			d.welcome(caller("default", n))
			d.refused(caller("prod", n), "no operator")
		}
		stays, leaves := caller("default", 0), caller("default", 1)
		cut, leave, err := d.Join(stays)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		d.Removed(leaves.Tenant, record(leaves).ID)
		if n := d.Members(); n != 2*each {
			t.Fatalf("%d are remembered", n)
		}
		time.Sleep(10 * time.Minute)
		d.Tidy()
		if n := d.Members(); n != each {
			t.Errorf("%d are remembered when those without a record are forgotten, want %d", n, each)
		}
		time.Sleep(24 * time.Hour)
		d.Tidy()
		if n := d.Members(); n != 1 || closed(cut) {
			t.Errorf("%d are remembered a day later, want the one that is here", n)
		}
	})
}
