package fleet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const operatorID fleet.InstanceID = "opr01jw51r7hsec0syhzdhqdajk8a"

func TestOperatorKey(t *testing.T) {
	key := fleet.OperatorKey("prod", operatorID)
	if !strings.HasPrefix(key, "cluster/operator/prod.") || !strings.HasSuffix(key, "-opr.json") {
		t.Errorf("key %s", key)
	}
	if o := (fleet.Operator{ID: operatorID, Tenant: "prod"}); o.Key() != key {
		t.Errorf("key %s, want %s", o.Key(), key)
	}
	tenant, id, err := fleet.ParseOperatorKey(key)
	if err != nil || tenant != "prod" || id != operatorID {
		t.Errorf("read as %s of %s, %v", id, tenant, err)
	}
	for _, bad := range []string{
		"", "cluster/operator/", "x" + key, key + "x", strings.TrimSuffix(key, ".json"),
		"cluster/operator/Prod." + operatorID.StorageKey() + ".json", "cluster/operator/prod.opr.json",
		strings.Replace(key, "-opr", "-knd", 1), "cluster/operator/" + operatorID.StorageKey() + ".json",
	} {
		if tenant, id, err := fleet.ParseOperatorKey(bad); err == nil {
			t.Errorf("%q is read as %s of %s", bad, id, tenant)
		}
	}
}

// TestRemovedOperator: a removed operator has no public key, and each write changes the body.
func TestRemovedOperator(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	was := fleet.Operator{ID: operatorID, Tenant: "prod", PublicKeySHA256: "ab", RegisteredAt: at.Add(-time.Hour)}
	o := was.Remove("opr2", at).Written(7, "dev-1.x")
	if o.ID != operatorID || o.Tenant != "prod" || o.PublicKeySHA256 != "" || !o.RegisteredAt.Equal(was.RegisteredAt) ||
		!o.RemovedAt.Equal(at) || o.RemovedBy != "opr2" || o.Epoch != 7 || o.Rev != 1 || o.Writer != "dev-1.x" {
		t.Errorf("%+v", o)
	}
	if was.RemovedAt != nil {
		t.Error("the record before was changed")
	}
	if next := o.Written(8, "dev-2.y"); next.Rev != 2 {
		t.Errorf("rev %d after 1", next.Rev)
	}
}

func TestCheckOperator(t *testing.T) {
	o := fleet.Operator{ID: operatorID, Tenant: "prod"}
	if err := o.Check("prod", operatorID); err != nil {
		t.Error(err)
	}
	for _, bad := range []fleet.Operator{{}, {ID: operatorID, Tenant: "default"}, {ID: "opr2", Tenant: "prod"}} {
		if bad.Check("prod", operatorID) == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

func FuzzParseOperatorKey(f *testing.F) {
	f.Add(fleet.OperatorKey("prod", operatorID))
	f.Add("cluster/operator/..json")
	f.Fuzz(func(t *testing.T, key string) {
		if tenant, id, err := fleet.ParseOperatorKey(key); err == nil && fleet.OperatorKey(tenant, id) != key {
			t.Fatalf("%q is read as %s of %s, whose key is %s", key, id, tenant, fleet.OperatorKey(tenant, id))
		}
	})
}
