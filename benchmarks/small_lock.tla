---- MODULE small_lock ----
EXTENDS Naturals, Sequences, FiniteSets
CONSTANTS N, A, P, F
VARIABLES lock, ctr, cs, pc, n, x, f
vars == <<lock, ctr, cs, pc, n, x, f>>
Procs == 0..N-1
Tok(p) == p*10 + n[p]
Init == /\ lock = <<>> /\ ctr = 0 /\ cs = {} /\ f = F
        /\ pc = [p \in Procs |-> "push"] /\ n = [p \in Procs |-> 0] /\ x = [p \in Procs |-> 0]
Go(p, l, v) == pc' = [pc EXCEPT ![p] = l] /\ x' = [x EXCEPT ![p] = v]
After(p, arr, k) == IF arr[1] = Tok(p) THEN Go(p, "enter", 0)
                    ELSE IF k < P THEN Go(p, "find", k) ELSE Go(p, "pull", 0)
Push(p) == /\ pc[p] = "push" /\ lock' = Append(lock, Tok(p)) /\ UNCHANGED <<ctr, cs, n>>
           /\ \/ After(p, lock', 0) /\ UNCHANGED f
              \/ f > 0 /\ f' = f - 1 /\ Go(p, "pull", 0)
Find(p) == /\ pc[p] = "find" /\ UNCHANGED <<lock, ctr, cs, n>>
           /\ \/ After(p, lock, x[p] + 1) /\ UNCHANGED f
              \/ f > 0 /\ f' = f - 1 /\ Go(p, "pull", 0)
Enter(p) == pc[p] = "enter" /\ cs' = cs \cup {p} /\ Go(p, "read", 0) /\ UNCHANGED <<lock, ctr, n, f>>
Read(p) == pc[p] = "read" /\ Go(p, "write", ctr) /\ UNCHANGED <<lock, ctr, cs, n, f>>
Write(p) == pc[p] = "write" /\ ctr' = x[p] + 1 /\ Go(p, "exit", 0) /\ UNCHANGED <<lock, cs, n, f>>
Exit(p) == pc[p] = "exit" /\ cs' = cs \ {p} /\ Go(p, "pull", 0) /\ UNCHANGED <<lock, ctr, n, f>>
Pull(p) == /\ pc[p] = "pull" /\ lock' = SelectSeq(lock, LAMBDA t : t # Tok(p)) /\ UNCHANGED <<ctr, cs, f>>
           /\ IF n[p] + 1 < A THEN n' = [n EXCEPT ![p] = @ + 1] /\ Go(p, "push", 0)
              ELSE n' = [n EXCEPT ![p] = 0] /\ Go(p, "done", 0)
Crash(p) == pc[p] \notin {"done","dead"} /\ f > 0 /\ f' = f - 1 /\ n' = [n EXCEPT ![p] = 0] /\ Go(p, "dead", 0) /\ UNCHANGED <<lock, ctr, cs>>
Next == \E p \in Procs : Push(p) \/ Find(p) \/ Enter(p) \/ Read(p) \/ Write(p) \/ Exit(p) \/ Pull(p) \/ Crash(p)
Spec == Init /\ [][Next]_vars
Mutex == Cardinality(cs) <= 1
====
