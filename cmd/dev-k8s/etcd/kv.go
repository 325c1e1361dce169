package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

type kv struct {
	pb.UnimplementedKVServer
	store *store.Store
}

// Range implements KVServer.
func (k *kv) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	answer, err := k.store.Range(store.Query{
		Key: string(r.Key), End: string(r.RangeEnd), Revision: r.Revision, Limit: r.Limit, CountOnly: r.CountOnly,
	})
	if err != nil {
		return nil, refused(err)
	}
	out := &pb.RangeResponse{Header: header(answer.Revision), Count: answer.Count}
	for _, e := range answer.Entries {
		one := wire(e)
		if r.KeysOnly {
			one.Value = nil
		}
		out.Kvs = append(out.Kvs, one)
	}
	out.More = !r.CountOnly && int64(len(out.Kvs)) < answer.Count
	return out, nil
}

func checkRange(r *pb.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.SortOrder == pb.RangeRequest_DESCEND, r.SortOrder == pb.RangeRequest_ASCEND && r.SortTarget != pb.RangeRequest_KEY:
		return status.Error(codes.Unimplemented, "only sorting by key is supported")
	case r.MinModRevision != 0, r.MaxModRevision != 0, r.MinCreateRevision != 0, r.MaxCreateRevision != 0:
		return status.Error(codes.Unimplemented, "ranges by revision are not supported")
	}
	return nil
}

func wire(e *store.Entry) *mvccpb.KeyValue {
	if e == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: []byte(e.Key), Value: e.Value, CreateRevision: e.Create, ModRevision: e.Mod, Version: e.Version, Lease: e.Lease,
	}
}

// Put implements KVServer.
func (k *kv) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	rev, prev, err := k.store.Commit([]string{string(r.Key)}, func(func(string) *store.Entry) *store.Change { return put(r) })
	if err != nil {
		return nil, refused(err)
	}
	return putDone(r, rev, prev), nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreLease || r.IgnoreValue:
		return status.Error(codes.Unimplemented, "a put must set both value and lease")
	}
	return nil
}

func put(r *pb.PutRequest) *store.Change {
	return &store.Change{Key: string(r.Key), Value: r.Value, Lease: r.Lease}
}

func putDone(r *pb.PutRequest, rev int64, prev *store.Entry) *pb.PutResponse {
	out := &pb.PutResponse{Header: header(rev)}
	if r.PrevKv {
		out.PrevKv = wire(prev)
	}
	return out
}

// DeleteRange implements KVServer, for one key.
func (k *kv) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	rev, prev, err := k.store.Commit([]string{string(r.Key)}, func(func(string) *store.Entry) *store.Change { return remove(r) })
	if err != nil {
		return nil, refused(err)
	}
	return deleteDone(r, rev, prev), nil
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case len(r.RangeEnd) > 0:
		return status.Error(codes.Unimplemented, "only one key can be deleted at a time")
	}
	return nil
}

func remove(r *pb.DeleteRangeRequest) *store.Change {
	return &store.Change{Key: string(r.Key), Delete: true}
}

func deleteDone(r *pb.DeleteRangeRequest, rev int64, prev *store.Entry) *pb.DeleteRangeResponse {
	out := &pb.DeleteRangeResponse{Header: header(rev)}
	if prev != nil {
		out.Deleted = 1
		if r.PrevKv {
			out.PrevKvs = []*mvccpb.KeyValue{wire(prev)}
		}
	}
	return out
}

// Compact implements KVServer.
func (k *kv) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := k.store.Compact(r.Revision); err != nil {
		return nil, refused(err)
	}
	return &pb.CompactionResponse{Header: header(k.store.Revision())}, nil
}
