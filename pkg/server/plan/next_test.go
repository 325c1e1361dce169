package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// A final Wake is only compared if the expectation contains "wake".
func TestNext(t *testing.T) {
	tests := []struct{ name, state, want string }{
		{"empty group of size 0", "size=0", ""},
		{"scale up from nothing", "size=3", "create scale-up | create scale-up | create scale-up"},
		{"at size", "size=2 | a running | b running", "wake +2m50s"},
		{"pending counts", "size=2 | a running | b pending", "wake +2m50s"},
		{"busy pending counts, and is left alone", "size=1 | a pending unmade busy created=6m", ""},
		{"draining does not count", "size=2 | a running | b draining", "create scale-up"},
		{"on-demand does not count", "size=2 | a running | b running ondemand", "create scale-up"},
		{"on-demand is not scaled down", "size=0 | b running ondemand", ""},
		{"negative size is zero", "size=-1 | a running", "drain a scale-down +5m0s"},

		{"scale down, oldest first", "size=1 | c running | a running | b running", "drain a scale-down +5m0s | drain b scale-down +5m0s"},
		{"scale down, unhealthy first", "size=1 | a running | b running | c running silent=3m",
			"drain a scale-down +5m0s | drain c scale-down +5m0s"},
		{"scale down by two, unhealthy first", "size=2 | a running | b running | c running silent=3m | d running",
			"drain a scale-down +5m0s | drain c scale-down +5m0s"},
		{"scale down to zero, unhealthy too", "size=0 | a running | b running silent=3m", "drain a scale-down +5m0s | drain b scale-down +5m0s"},
		{"scale down, what never came up before the oldest", "size=1 | a running | b pending", "delete b scale-down"},
		{"scale down, what lacks its files before the oldest", "size=1 files | a running | b running without-files", "drain b scale-down +5m0s"},
		{"scale down, what lacks optional files is not preferred", "size=1 files=optional | a running | b running without-files",
			"drain a scale-down +5m0s"},
		{"scale down without drain", "size=1 drain=0s | a running | b running", "delete a scale-down"},
		{"scale down takes the leaving, not the oldest", "size=1 leaving=b | a running | b running", "drain b asked-to-leave +5m0s"},
		{"the leaving are replaced within the size", "size=2 leaving=b | a running | b running",
			"create scale-up | drain b asked-to-leave +5m0s"},
		{"a busy one may be the one that goes", "size=1 | a running | b running busy", ""},
		{"a busy create may fail: wait for it", "size=1 | a running | b pending busy", ""},
		{"a busy one beside enough others", "size=1 | a running | b running busy | c running", "drain a scale-down +5m0s"},
		{"one more than a busy group needs", "size=2 | a running | b running silent=3m busy | c running", ""},

		{"dead: gone", "size=2 | a running gone | b running", "create scale-up | delete a vm-gone"},
		{"dead: down, all at once", "size=2 | a running down | b running down",
			"create scale-up | create scale-up | delete a vm-down | delete b vm-down"},
		{"dead beats leaving", "size=1 leaving=a | a running down | b running", "delete a vm-down"},
		{"dead and busy is replaced, and left alone", "size=1 | a running down busy", "create scale-up"},
		{"dead on-demand is deleted, not replaced", "size=0 | a running gone ondemand", "delete a vm-gone"},
		{"dead while pending", "size=1 | a pending gone", "create scale-up | delete a vm-gone"},
		{"no VM and none made yet is no death", "size=1 | a pending unmade gone", "resume a not-created"},
		{"VM state unknown is no death", "size=1 | a running unknown", ""},
		{"a broken connection alone is no death", "size=1 | a running disconnected", ""},
		{"notice", "size=1 | a running notice=2m", "create scale-up | drain a termination-notice +2m0s"},
		{"notice later than the drain", "size=1 | a running notice=10m", "create scale-up | drain a termination-notice +5m0s"},
		{"notice without a time", "size=1 | a running notice", "create scale-up | drain a termination-notice +5m0s"},
		{"notice that is over", "size=1 | a running notice=0s", "create scale-up | delete a termination-notice"},
		{"notice to an on-demand one", "size=0 | a running ondemand notice=2m", "drain a termination-notice +2m0s"},
		{"shutting down, within grace", "size=1 | a running shutting=10s", "wake +20s"},
		{"shutting down, asked to leave", "size=1 leaving=a drain=0s | a running shutting=10s",
			"create scale-up | delete a asked-to-leave | wake +20s"},
		{"shutting down, grace over", "size=1 | a running shutting=30s", "create scale-up | drain a shut-down +5m0s"},
		{"shutting down, VM down", "size=1 | a running shutting=1s down", "create scale-up | delete a shut-down"},

		{"unhealthy: one more first", "size=2 | a running silent=3m | b running", "create replacement"},
		{"unhealthy: exactly due", "size=1 | a running silent=2m59s", "wake +1s"},
		{"unhealthy: an agent that reports more rarely than is configured now", "size=1 | a running silent=3m interval=2m", "wake +3m0s"},
		{"unhealthy: by its own pace", "size=1 | a running silent=6m interval=2m", "create replacement"},
		{"unhealthy: an agent's word does not shorten what is configured", "size=1 | a running silent=2m interval=1s", "wake +1m0s"},
		{"unhealthy: nor put it off for ever", "size=1 | a running silent=3h interval=100000h", "create replacement"},
		{"unhealthy: wait for the replacement", "size=2 | a running silent=3m | b running | c pending", ""},
		{"unhealthy: wait for its first report", "size=2 | a running silent=3m | b running | c running unreported registered=1s", ""},
		{"unhealthy: then drain", "size=2 | a running silent=3m | b running | c running", "drain a unhealthy +5m0s"},
		{"unhealthy: then delete", "size=2 drain=0s | a running silent=3m | b running | c running", "delete a unhealthy"},
		{"unhealthy: not on the word of a disconnected one", "size=2 | a running silent=3m | b running disconnected | c running", ""},
		{"unhealthy: one at a time", "size=3 | a running silent=3m | b running silent=4m | c running silent=5m", "create replacement"},
		{"unhealthy: the oldest first", "size=3 | a running silent=3m | b running silent=4m | c running silent=5m | d running",
			"drain a unhealthy +5m0s"},
		{"unhealthy: the next when the first has left",
			"size=3 | a draining reason=unhealthy | b running silent=4m | c running silent=5m | d running",
			"wake +1m0s"},
		{"unhealthy: not while another's drain is being written", "size=2 | a running silent=3m busy | b running silent=3m | c running", ""},
		{"unhealthy beside a missing one", "size=3 | a running silent=3m | b running", "create scale-up | create replacement"},
		{"unhealthy on-demand is not replaced", "size=0 | a running ondemand silent=1h", ""},
		{"unhealthy counts from takeover", "size=1 takeover=1m | a running unreported", "wake +2m0s"},
		{"unhealthy counts from registration", "size=1 | a running unreported registered=1m", "wake +2m0s"},
		{"needless replacement, not up yet", "size=1 | a running | b pending", "delete b scale-down"},
		{"needless replacement, up", "size=1 | a running | b running", "drain a scale-down +5m0s"},

		{"pending without a VM", "size=1 | a pending unmade", "resume a not-created"},
		{"pending without a VM, later", "size=1 | a pending unmade retry=10s", "wake +10s"},
		{"pending without a VM, creates held back", "size=2 holdoff=20s | a pending unmade retry=10s", "wake +20s"},
		{"creates held back", "size=1 holdoff=20s", "wake +20s"},
		{"holding back stops nothing else", "size=1 holdoff=20s | a running down | b deleting gone",
			"delete a vm-down | tombstone b | wake +20s"},
		{"registration timeout is still ahead", "size=1 | a pending created=4m", "wake +1m0s"},
		{"registration timeout frees the place when it is recorded", "size=1 | a pending created=5m", "delete a registration-timeout"},
		{"registration timeout counts from takeover", "size=1 takeover=4m | a pending created=1h", "wake +1m0s"},
		{"registration timeout of an on-demand one", "size=0 | a pending created=5m ondemand", "delete a registration-timeout"},
		{"registration timeout counts from the last create", "size=1 | a pending created=1h tried=4m", "wake +1m0s"},
		{"registration timeout counts from a repeated create", "size=1 | a pending created=1h tried=1h again=4m", "wake +1m0s"},
		{"registration timeout of a create of unknown outcome", "size=1 | a pending unmade created=1h tried=5m retry=10s",
			"delete a registration-timeout"},
		{"waiting for room is not late to register", "size=1 | a pending unmade created=1h retry=10s", "wake +10s"},
		{"an on-demand one waits for room", "size=0 | a pending unmade ondemand created=9m retry=2m", "wake +1m0s"},
		{"an on-demand one that waited for too long", "size=0 | a pending unmade ondemand created=10m", "tombstone a create-timeout"},
		{"an on-demand one that waited for too long, disabled", "size=0 disabled | a pending unmade ondemand created=10m",
			"tombstone a create-timeout"},
		{"an on-demand one that may have been made for too long", "size=0 | a pending unmade ondemand created=10m tried=9m",
			"delete a create-timeout"},
		{"an on-demand one that was made after all", "size=0 | a pending ondemand created=10m tried=1m", "wake +4m0s"},
		{"a group's own waits as long as it takes", "size=1 | a pending unmade created=24h", "resume a not-created"},
		{"timed out is the one that is too many", "size=1 | a running | b pending created=5m", "delete b registration-timeout"},
		{"what is scaled down is not resumed", "size=0 | a pending unmade tried=1s", "delete a scale-down"},
		{"what was never made needs no delete", "size=0 | a pending unmade", "tombstone a scale-down"},
		{"what is there although it was never asked for does", "size=0 | a pending unmade alive", "delete a scale-down"},
		{"stray", "size=1 | a running | b pending unmade stray", "tombstone b never-acted-on"},
		{"stray with a VM after all", "size=1 | a running | b pending stray", "delete b never-acted-on"},

		{"draining, not due", "size=0 | a draining", "wake +1m0s"},
		{"draining, acknowledged", "size=0 | a draining acked reason=unhealthy", "delete a unhealthy"},
		{"draining, due", "size=0 | a draining until=0s", "delete a scale-down"},
		{"draining, died", "size=0 | a draining down", "delete a scale-down"},
		{"draining, notice since", "size=0 | a draining notice=10s", "wake +10s"},
		{"deleting, not gone", "size=0 | a deleting reason=unhealthy", "delete a unhealthy"},
		{"deleting, asked", "size=0 | a deleting retry=5s", "wake +5s"},
		{"deleting, gone", "size=0 | a deleting gone retry=5s reason=vm-down", "tombstone a vm-down"},
		{"deleting, busy", "size=0 | a deleting gone busy", ""},
		{"tombstone", "size=0 | a deleted deleted=29m", "wake +1m0s"},
		{"tombstone, retention over", "size=0 | a deleted deleted=30m", "prune a retention-over"},

		{"leaving ids that are gone", "size=1 leaving=d,c,b | a running | b draining | c deleted", "settle c d"},
		{"disabled", "size=3 disabled leaving=x | a running down | b pending unmade | c deleting gone | d draining acked | e deleted deleted=1h",
			"delete d scale-down | tombstone c | prune e retention-over"},
		{"removed", "size=2 removed | a running | b running | c pending | d running ondemand",
			"drain a group-removed +5m0s | drain b group-removed +5m0s | drain d group-removed +5m0s | delete c group-removed"},
		{"removed, almost empty", "size=2 removed | a deleting retry=5s", "wake +5s"},
		{"removed, empty but for tombstones", "size=2 removed | a deleted", "forget group-removed | wake +29m0s"},

		{"forced expiry is ahead", "size=1 forced=25h0m30s | a running", "wake +30s"},
		{"eligible is ahead", "size=1 eligible=25h0m20s | a running", "wake +20s"},
		{"forced expiry: one more first", "size=1 forced=24h | a running", "create replacement"},
		{"forced expiry, while something drains", "size=1 forced=24h | a running | b draining", "create replacement"},
		{"forced expiry beside the unhealthy", "size=2 forced=24h | a running | b running silent=3m | c running",
			"create replacement | drain b unhealthy +5m0s"},
		{"forced expiry of one that is unhealthy", "size=2 forced=24h | a running silent=3m | b running | c running", "drain a unhealthy +5m0s"},
		{"forced expiry, while the last unhealthy one leaves",
			"size=2 forced=24h | a running silent=3m | b draining reason=unhealthy | c running | d running", "drain a forced-expiry +5m0s"},
		{"eligible", "size=2 eligible=24h | a running | b running | c running", "drain a expired +5m0s"},
		{"eligible, while something drains", "size=2 eligible=24h | a running | b running | c draining", ""},
		{"eligible, while something is unhealthy", "size=2 eligible=24h | a running | b running silent=3m", "create replacement"},
		{"eligible, while something is missing", "size=3 eligible=24h | a running | b running", "create scale-up"},
		{"asked to be replaced: one more first", "size=2 | a running | b running asked", "create replacement"},
		{"asked to be replaced: wait for the replacement", "size=2 | a running | b running asked | c pending", ""},
		{"asked to be replaced: then drain", "size=2 | a running | b running asked | c running", "drain b asked-to-be-replaced +5m0s"},
		{"asked to be replaced: then delete", "size=2 drain=0s | a running | b running asked | c running", "delete b asked-to-be-replaced"},
		{"asked to be replaced: several, one at a time", "size=3 | a running asked | b running asked | c running asked", "create replacement"},
		{"asked to be replaced: the next does not wait for the drain",
			"size=2 | a draining reason=asked-to-be-replaced | b running asked | c running",
			"create replacement"},
		{"asked to be replaced: before what is forced by age", "size=1 forced=24h | a running | b running asked",
			"drain b asked-to-be-replaced +5m0s"},
		{"asked to be replaced: while something is unhealthy", "size=2 | a running silent=3m | b running asked | c running",
			"drain b asked-to-be-replaced +5m0s"},
		{"asked to be replaced: others that are replaced wait for it",
			"size=2 | a draining reason=asked-to-be-replaced | b running silent=3m | c running",
			""},
		{"asked to be replaced: pending ones at once", "size=2 | a running | b pending asked", "delete b asked-to-be-replaced"},
		{"asked to be replaced: not while its create is under way", "size=2 | a running | b pending unmade asked busy", ""},
		{"asked to be replaced: dead", "size=1 | a running asked down", "create scale-up | delete a vm-down"},
		{"asked to be replaced: scaled down first", "size=1 | a running | b running | c running asked",
			"drain a scale-down +5m0s | drain c scale-down +5m0s"},
		{"asked to be replaced: several, scaled down first", "size=2 | a running | b running | c running asked | d running asked",
			"drain c scale-down +5m0s | drain d scale-down +5m0s"},
		{"asked to be replaced: scaled to zero", "size=0 | a running asked", "drain a scale-down +5m0s"},
		{"asked to be replaced: draining already", "size=1 | a draining asked | b running", "wake +1m0s"},
		{"asked to be replaced: creates held back", "size=1 holdoff=20s | a running asked", "wake +20s"},
		{"asked to be replaced: disabled", "size=1 disabled | a running asked", ""},
		{"on-demand, asked to be deleted", "size=1 | a running | b running ondemand asked", "drain b asked-to-be-deleted +5m0s"},
		{"on-demand, asked to be deleted, without drain", "size=0 drain=0s | b running ondemand asked", "delete b asked-to-be-deleted"},
		{"on-demand, asked to be deleted before it was made", "size=0 | b pending unmade ondemand asked", "tombstone b asked-to-be-deleted"},
		{"on-demand, asked to be deleted in a disabled group", "size=0 disabled | b running ondemand asked", "drain b asked-to-be-deleted +5m0s"},
		{"on-demand, asked and busy", "size=0 | b running ondemand asked busy", ""},
		{"on-demand without a VM", "size=0 | b pending unmade ondemand", "resume b not-created"},
		{"on-demand without a VM, later", "size=0 | b pending unmade ondemand retry=10s", "wake +10s"},
		{"on-demand without a VM, the group's creates held back", "size=1 holdoff=20s | b pending unmade ondemand",
			"resume b not-created | wake +20s"},
		{"on-demand without a VM, disabled", "size=1 disabled | b pending unmade ondemand", "wake +9m0s"},
		{"on-demand never rotates", "size=0 infra=new | b running ondemand infra=old", ""},
		{"on-demand is not forced out with the group", "size=0 eligible=1h forced=2h | b running ondemand", ""},
		{"on-demand is no replacement", "size=1 forced=24h | a running | b running ondemand", "create replacement"},
		{"on-demand that leaves holds up no rotation", "size=1 infra=new | a running infra=old | b draining ondemand reason=asked-to-be-deleted",
			"create replacement"},
		{"on-demand is not the group's to give up", "size=1 leaving=b | a running | b running ondemand", "settle b"},
		{"on-demand expiry without drain", "size=0 ondemand=24h drain=0s | a running ondemand", "delete a on-demand-expired"},
		{"on-demand expiry", "size=0 ondemand=24h | a running ondemand", "drain a on-demand-expired +5m0s"},
		{"on-demand expiry is ahead", "size=0 ondemand=25h30m | a running ondemand", "wake +30m0s"},
		{"rotation: one more first", "size=2 infra=new | a running infra=new | b running infra=old", "create replacement"},
		{"rotation: then drain", "size=2 infra=new | a running infra=new | b running infra=old | c running infra=new",
			"drain b infra-drift +5m0s"},
		{"rotation: one at a time", "size=2 infra=new | a draining reason=infra-drift | b running infra=old | c running infra=new", "wake +1m0s"},
		{"rotation: scale up comes first", "size=3 infra=new | a running infra=old | b running infra=new", "create scale-up"},
		{"rotation: without a hash it is unknown", "size=1 infra=new | a running", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.state, tt.want) })
	}
}

// expect compares the decision about a state with the expected one.
func expect(t *testing.T, state, want string) {
	t.Helper()
	v := parse(t, state)
	got := plan.Next(v).Actions
	if !strings.Contains(want, "wake") {
		got = slices.DeleteFunc(got, func(a plan.Action) bool { return a.Kind == plan.Wake })
	}
	if s := format(v, got); s != want {
		t.Errorf("state: %s\n got: %s\nwant: %s", state, s, want)
	}
}

func BenchmarkNext(b *testing.B) {
	for _, count := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("instances=%d", count), func(b *testing.B) {
			v := plan.View{Now: now, Settings: settings(), Takeover: now.Add(-24 * time.Hour)}
			v.Settings.ForcedAge = 1000 * time.Hour
			v.Group = fleet.Group{Size: count + 2, Hashes: fleet.Hashes{Infra: "h"}}
			for n := range count {
				i := instance(newID(now.Add(-25*time.Hour), uint64(n)), fleet.Running)
				i.Hashes.Infra = "h"
				v.Instances = append(v.Instances, i)
			}
			for b.Loop() {
				if got := plan.Next(v).Actions; len(got) != 3 {
					b.Fatal(format(v, got))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/plan")
		})
	}
}
