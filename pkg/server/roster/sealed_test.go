package roster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	sealing "github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/rpc"
)

// TestTombstone: an operator with a tombstone is refused, whatever its record says: at its
// first call, and within a minute while it is active, even if only the tombstone was written.
func TestTombstone(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		first, watches := caller("prod", 1), caller("prod", 2)
		d.put(record(first))
		d.put(record(watches))
		d.welcome(watches)
		cut, leave, err := d.Join(watches)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for _, o := range []fleet.Operator{record(first), record(watches)} {
			d.putAs(fleet.OperatorTombstoneKey("prod", o.ID), o.Remove("opr", time.Now()), seal())
		}
		d.refused(first, "was removed")
		time.Sleep(61 * time.Second)
		if d.refused(watches, "was removed"); !closed(cut) {
			t.Error("its stream goes on")
		}
	})
}

// TestDamagedRecordHidesNoTombstone: a removed operator is refused even if its record was
// damaged before the removal was noticed.
func TestDamagedRecordHidesNoTombstone(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		who := caller("prod", 1)
		o := record(who)
		d.put(o)
		d.welcome(who)
		cut, leave, err := d.Join(who)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		d.putAs(fleet.OperatorTombstoneKey("prod", o.ID), o.Remove("opr", time.Now()), seal())
		d.write(o.Key(), "{")
		time.Sleep(61 * time.Second)
		if d.refused(who, "was removed"); !closed(cut) {
			t.Error("its stream goes on")
		}
	})
}

// TestUnsealedRecords: a record with an invalid seal admits no operator, revokes no admitted
// one, and is named in the error.
func TestUnsealedRecords(t *testing.T) {
	for name, spoil := range map[string]func(d *desk, o fleet.Operator){
		"of another key":  func(d *desk, o fleet.Operator) { d.putAs(o.Key(), o, sealing.NewSeal([]byte("of another cluster"))) },
		"without a seal":  func(d *desk, o fleet.Operator) { d.write(o.Key(), `{"id":"`+string(o.ID)+`","tenant":"prod"}`) },
		"changed":         func(d *desk, o fleet.Operator) { d.write(o.Key(), strings.Replace(d.read(o.Key()), `"ab"`, `"ac"`, 1)) },
		"with more":       func(d *desk, o fleet.Operator) { d.write(o.Key(), strings.Replace(d.read(o.Key()), `{`, `{"x":1,`, 1)) },
		"with less":       func(d *desk, o fleet.Operator) { d.write(o.Key(), strings.Replace(d.read(o.Key()), `"rev":1,`, ``, 1)) },
		"of another name": func(d *desk, o fleet.Operator) { d.write(o.Key(), d.read(record(caller("prod", 9)).Key())) },
		"an unsealed tombstone": func(d *desk, o fleet.Operator) {
			d.write(fleet.OperatorTombstoneKey("prod", o.ID), `{"id":"`+string(o.ID)+`","tenant":"prod","removed_at":"2030-01-01T00:00:00Z"}`)
		},
		"a record for a tombstone": func(d *desk, o fleet.Operator) { d.write(fleet.OperatorTombstoneKey("prod", o.ID), d.read(o.Key())) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				known, stranger := caller("prod", 1), caller("prod", 2)
				d.put(record(caller("prod", 9)))
				for _, o := range []fleet.Operator{record(known), record(stranger)} {
					d.put(o)
				}
				d.welcome(known)
				_, leave, err := d.Join(known)
				if err != nil {
					t.Fatal(err)
				}
				defer leave()
				spoil(d, record(known))
				spoil(d, record(stranger))
				time.Sleep(5 * time.Minute)
				d.welcome(known)
				err = d.judge(stranger)
				if !errors.Is(err, rpc.Unavailable) || !strings.Contains(err.Error(), "cluster/operator/prod.") {
					t.Errorf("the verdict on one that was never let in is %v, want one that names the object", err)
				}
			})
		})
	}
}
