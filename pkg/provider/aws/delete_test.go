package aws_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// unlisting is a cloud in which no filter finds an instance: EC2 takes the tags of what is
// terminated before it forgets it.
type unlisting struct {
	http.Handler
	id string
}

func (u *unlisting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if u.id != "" && strings.Contains(string(body), "Action=DescribeInstances") {
		body = bytes.ReplaceAll(body, []byte(u.id), []byte("i-0000000000000ffff"))
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	u.Handler.ServeHTTP(w, r)
}

// TestOneThatIsGoneHoldsUpNoOther: the right to end it depends on tags that it has no more,
// and is refused for all that is named in the same call.
func TestOneThatIsGoneHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := awsfake.New(cloudConfig(t))
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

// TestRetaggedIsLeftAlone: one that was given to another shard, or out of any, by its tags
// is not ended by the shard that made it.
func TestRetaggedIsLeftAlone(t *testing.T) {
	other := maps.Clone(spec(t, 1).Tags)
	other[provider.TagShard] = "other"
	unmanaged := maps.Clone(spec(t, 1).Tags)
	delete(unmanaged, provider.TagManaged)
	for name, tags := range map[string]map[string]string{"another shard's": other, "nobody's": unmanaged} {
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
