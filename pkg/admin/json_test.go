package admin_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestJSON: the output is stable, and has the protocol's fields, including zero values, beside
// the shard.
func TestJSON(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for want, v := range map[string]any{
		`{"shard":"a","key":"web","tenant":"","template":"","size":2,"instance_type":"","subnet_pool":"","vars":{"n":1},` +
			`"is_static":false,"etag":"","actual_size":0,"pending_size":0,"draining_size":0,"up_to_date_size":0,"static_size":0,` +
			`"conditions":[{"type":"Ready","status":"True","reason":"","message":"","last_transition_time":"2026-01-02T03:04:05Z"}],` +
			`"instances":[],"capacity":{"cpu_millis":"4000","memory_bytes":"0","arch":""},"max_surge":"",` +
			`"files_up_to_date_size":0,"rollout_paused":false,"manager":"o","already_gone":["x"],"managed_before":"p"}`: admin.Group{
			Shard: "a", AlreadyGone: []string{"x"}, ManagedBefore: "p", GroupStatus: &nstancev1.GroupStatus{
				Key: "web", Size: 2, Manager: "o", Vars: &structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(1)}},
				Conditions: []*nstancev1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: at}},
				Capacity:   &nstancev1.MachineCapacity{CpuMillis: 4000},
			},
		},
		`{"shard":"a","key":"web","tenant":"","template":"","size":2,"instance_type":"","subnet_pool":"","vars":{"instances":[]},` +
			`"is_static":false,"etag":"","actual_size":0,"pending_size":0,"draining_size":0,"up_to_date_size":0,"static_size":0,` +
			`"conditions":[],"max_surge":"","files_up_to_date_size":0,"rollout_paused":false,"manager":""}`: admin.Group{
			Shard: "a", Bare: true, GroupStatus: &nstancev1.GroupStatus{Key: "web", Size: 2, Vars: &structpb.Struct{
				Fields: map[string]*structpb.Value{"instances": structpb.NewListValue(&structpb.ListValue{})},
			}},
		},
		`{"id":"o","tenant":"","registered_at":"2026-01-02T03:04:05Z","removed_by":"","connected":false,"connected_to":[]}`: admin.Operator{
			OperatorStatus: &nstancev1.OperatorStatus{Id: "o", RegisteredAt: at},
		},
		`{"reason":"ConfigInvalid","message":"m","group":"","instance_id":"","over":false}`: admin.Problem{
			WatchErrorsResponse: &nstancev1.WatchErrorsResponse{Reason: "ConfigInvalid", Message: "m"},
		},
		`[{"tenant":"t","group":"g","static_size":1,"size":0,"manager":""}]`: admin.SizeOverrides{{Tenant: "t", Group: "g", StaticSize: 1}},
	} {
		if text, err := json.Marshal(v); err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
	i := admin.Instance{Shard: "a", InstanceStatus: &nstancev1.InstanceStatus{Phase: nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING}}
	var fields struct{ Shard, Phase string }
	if text, err := json.Marshal(i); err != nil || json.Unmarshal(text, &fields) != nil || fields.Shard != "a" ||
		fields.Phase != "INSTANCE_PHASE_DRAINING" {
		t.Errorf("%s, %v", text, err)
	}
	if acked := proto.CloneOf(i.InstanceStatus); !i.Drains() {
		t.Error("Drains is false for a draining instance")
	} else if acked.Drain = (&nstancev1.DrainStatus{AckedAt: at}); (admin.Instance{InstanceStatus: acked}).Drains() {
		t.Error("Drains is true after the acknowledgement")
	}
}
