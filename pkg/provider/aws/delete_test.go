package aws_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// unlisting is a cloud whose reads no longer show an instance that still exists, as EC2 does with
// terminated ones.
type unlisting struct {
	http.Handler
	id string
}

func (u *unlisting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := httptest.NewRecorder()
	u.Handler.ServeHTTP(reply, r)
	w.WriteHeader(reply.Code)
	text := reply.Body.String()
	if u.id != "" && strings.Contains(text, "<DescribeInstancesResponse") {
		text = strings.ReplaceAll(text, u.id, "i-0000000000000ffff")
	}
	_, _ = io.WriteString(w, text)
}

// TestOneThatIsGoneHoldsUpNoOther: deleting it is allowed by tags that it no longer has, so a call
// that names it is refused for the whole batch.
func TestOneThatIsGoneHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := awstest.New(cloudConfig(t))
		u := &unlisting{Handler: cloud}
		p := open(t, serve(t, u), scope)
		gone, alive := must(t, p, spec(t, 1)), must(t, p, spec(t, 2))
		if err := cloud.Tag(gone.ProviderID, nil); err != nil {
			t.Fatal(err)
		}
		u.id = gone.ProviderID
		errs := p.Delete(t.Context(), []provider.Ref{gone.Ref(), alive.Ref()})
		if got, err := provider.GetOne(t.Context(), p, alive.Ref()); errs[1] != nil || err != nil || got.State.Alive() {
			t.Errorf("the other one is %s, %v; deleted: %v", got.State, err, errs[1])
		}
		if err := errs[0]; err == nil || !strings.Contains(err.Error(), gone.ProviderID) {
			t.Errorf("the one that can't be seen: %v, want that it may not be ended", err)
		}
	})
}

// TestRetaggedIsLeftAlone: an instance whose tags now name another shard, or none, is not deleted
// by the shard that created it.
func TestRetaggedIsLeftAlone(t *testing.T) {
	other := maps.Clone(spec(t, 1).Tags)
	other[provider.TagShard] = "other"
	unmanaged := maps.Clone(spec(t, 1).Tags)
	delete(unmanaged, provider.TagManaged)
	for name, tags := range map[string]map[string]string{"another shard's": other, "unmanaged": unmanaged} {
		synctest.Test(t, func(t *testing.T) {
			cloud, p := newWorld(t, nil)
			vm := must(t, p, spec(t, 1))
			if err := cloud.Tag(vm.ProviderID, tags); err != nil {
				t.Fatal(err)
			}
			err := p.Delete(t.Context(), []provider.Ref{vm.Ref()})[0]
			if n := len(cloud.Calls("TerminateInstances")); err != nil || n != 0 || cloud.Machines()[0].State == "terminated" {
				t.Errorf("%s: %v after %d calls to end it, and it is %s", name, err, n, cloud.Machines()[0].State)
			}
		})
	}
}
