package etcd

import (
	"bytes"
	"cmp"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// Txn implements KVServer, for transactions whose branches write at most one key: every
// revision is one file.
func (k *kv) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	keys, err := checkTxn(r)
	if err != nil {
		return nil, err
	}
	out := &pb.TxnResponse{}
	rev, prev, err := k.store.Commit(keys, func(now func(string) *store.Entry) *store.Change {
		out.Succeeded = holds(r.Compare, now)
		for _, op := range branch(r, out.Succeeded) {
			if c := change(op); c != nil {
				return c
			}
		}
		return nil
	})
	if err != nil {
		return nil, refused(err)
	}
	out.Header = header(rev)
	for _, op := range branch(r, out.Succeeded) {
		one, err := k.done(ctx, op, rev, prev)
		if err != nil {
			return nil, err
		}
		out.Responses = append(out.Responses, one)
	}
	return out, nil
}

func branch(r *pb.TxnRequest, succeeded bool) []*pb.RequestOp {
	if succeeded {
		return r.Success
	}
	return r.Failure
}

// checkTxn returns the keys on which the transaction depends.
func checkTxn(r *pb.TxnRequest) (keys []string, err error) {
	for _, c := range r.Compare {
		if len(c.RangeEnd) > 0 {
			return nil, status.Error(codes.Unimplemented, "only one key can be compared")
		}
		keys = append(keys, string(c.Key))
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		writes := 0
		for _, op := range ops {
			if err := checkOp(op); err != nil {
				return nil, err
			}
			if c := change(op); c != nil {
				keys = append(keys, c.Key)
				writes++
			}
		}
		if writes > 1 {
			return nil, status.Error(codes.Unimplemented, "a transaction can write at most one key")
		}
	}
	return keys, nil
}

func checkOp(op *pb.RequestOp) error {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		if op.RequestRange.Revision != 0 {
			return status.Error(codes.Unimplemented, "a transaction can only read the newest revision")
		}
		return checkRange(op.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(op.RequestDeleteRange)
	default:
		return status.Error(codes.Unimplemented, "nested transactions are not supported")
	}
}

func change(op *pb.RequestOp) *store.Change {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return put(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return remove(op.RequestDeleteRange)
	}
	return nil
}

// done returns the response of an operation of a transaction that ended at the revision.
func (k *kv) done(ctx context.Context, op *pb.RequestOp, rev int64, prev *store.Entry) (*pb.ResponseOp, error) {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: putDone(op.RequestPut, rev, prev)}}, nil
	case *pb.RequestOp_RequestDeleteRange:
		deleted := deleteDone(op.RequestDeleteRange, rev, prev)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleted}}, nil
	}
	asked := *op.GetRequestRange()
	asked.Revision = rev // there may be later writes
	answer, err := k.Range(ctx, &asked)
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: answer}}, err
}

func holds(all []*pb.Compare, now func(string) *store.Entry) bool {
	for _, c := range all {
		e := now(string(c.Key))
		if e == nil {
			e = &store.Entry{} // for etcd a missing key has zero values
			if c.Target == pb.Compare_VALUE {
				return false
			}
		}
		if !compare(c, e) {
			return false
		}
	}
	return true
}

func compare(c *pb.Compare, e *store.Entry) bool {
	var order int
	switch c.Target {
	case pb.Compare_VERSION:
		order = cmp.Compare(e.Version, c.GetVersion())
	case pb.Compare_CREATE:
		order = cmp.Compare(e.Create, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(e.Mod, c.GetModRevision())
	case pb.Compare_LEASE:
		order = cmp.Compare(e.Lease, c.GetLease())
	case pb.Compare_VALUE:
		order = bytes.Compare(e.Value, c.GetValue())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	default:
		return order != 0
	}
}
